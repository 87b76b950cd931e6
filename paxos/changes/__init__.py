"""What changes who decides: the steal (`handover`), changes of members, a vote that comes back
after a loss (`rejoin`), damage to the log (`rewriting`, `testimony`), a state that came from
elsewhere (`snapshot`), and doubt about a log that differs. Safety rules; the shell may order some.
"""
