"""The web console: what nodes tell each other for it (`messages.py`), the picture made of that, and
those who watch. Its static files are in dashboards/console/.
"""
