"""How a message is declared (`schema.py`), and the compiler that makes a function of each class and
version. Knows no message.
"""
