"""Example prompts by task, written for this page: such as the small default target answers well."""

EXAMPLES: dict[str, str] = {
    "Code: the sum of a list": (
        "Write a Python function that returns the sum of a list of numbers, with an example."
    ),
    "Explain: the heart": "What does the heart do?",
    "Explain: the blue sky": "Explain in two sentences why the sky is blue.",
    "Explain: photosynthesis": "What is photosynthesis, and why do plants need light for it?",
    "Question: a capital": "What is the capital of France?",
    "List: breakfast": "What are three healthy breakfast ideas?",
    "Letter: thank a teacher": (
        "Write a short letter that thanks a teacher for a school trip to the museum."
    ),
    "Copy: repeat and change": (
        "Repeat this sentence three times and then say it as a question: The little red boat sails"
        " across the quiet lake every morning."
    ),
    "Story: the key": "Write a short story about a dog that finds a key.",
    "Story: the lighthouse": (
        "Tell a very short story about a lighthouse keeper who finds a bottle."
    ),
}
