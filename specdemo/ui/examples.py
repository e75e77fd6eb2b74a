"""Example prompts by task, written for this page."""

EXAMPLES: dict[str, str] = {
    "Arithmetic: the bakery": (
        "A baker makes 24 rolls every morning. She sells 15 and gives 3 to her neighbour. How many"
        " rolls are left after 5 days? Think step by step."
    ),
    "Arithmetic: the train": (
        "A train travels 60 km in the first hour and 45 km in each of the next two hours. How far"
        " does it travel in total? Explain each step."
    ),
    "Code: add up a list": (
        "Write a Python function that adds up all even numbers of a list, and explain how it works."
    ),
    "Code: count words": (
        "Write a Python function that counts how often each word appears in a text."
    ),
    "Explain: the seasons": "Explain to a ten-year-old why there are seasons on Earth.",
    "Explain: photosynthesis": "What is photosynthesis, and why do plants need light for it?",
    "List: healthy habits": "List ten healthy habits, one short line each.",
    "Letter: thank a teacher": (
        "Write a short letter that thanks a teacher for a school trip to the museum."
    ),
    "Copy: repeat and change": (
        "Repeat this sentence three times and then say it as a question: The little red boat sails"
        " across the quiet lake every morning."
    ),
    "Translate: to French": (
        "Translate into French: The library opens at nine, and the garden behind it is free for"
        " everyone."
    ),
    "Story: the lighthouse": (
        "Tell a very short story about a lighthouse keeper who finds a bottle."
    ),
}
