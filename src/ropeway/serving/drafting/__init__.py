"""Drafting on rank 0: guesses at the tokens to come, which one round then verifies on every stage.

A drafter guesses; the window says how many guesses are worth their rows; `drafting.py` stands between them and the
loop. What a guess can never do is change a reply: a token is always the one that the model's own logits and the
sequence's own draw give, and the first guess that differs from it ends the accepted ones.
"""
