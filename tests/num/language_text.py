"""A small text that a model can learn."""
import os
import random


def write_text(directory, size=20000, seed=1):
    """Writes sentences of about 20 letters that a model can learn."""
    words = ["the", "cat", "sat", "on", "a", "mat", "and", "saw", "two", "dogs", "\n"]
    pick = random.Random(seed)
    text = ""
    while len(text) < size:
        text += pick.choice(words) + " "
    os.makedirs(directory, exist_ok=True)
    with open(os.path.join(directory, "input.txt"), "w") as f:
        f.write(text[:size])
    return text[:size]
