"""How a message is declared (`schema.py`), and the compiler that makes an encoder and a decoder for
each message class and version. It knows no particular message.
"""
