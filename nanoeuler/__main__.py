"""``python -m nanoeuler``: the list of commands."""

COMMANDS = {
    "train": "train a model, or go on with a run",
    "generate": "text from a trained model",
    "tokenizer": "train a tokenizer, encode and decode with it, look at what it has learned",
    "corpus": "text of files or of a hub's data set into token shards",
    "plan": "parameters, arithmetic and memory of a run, before it starts",
    "inspect": "what a model is: architecture, parameters by part, tokenizer, a histogram of each tensor",
    "convert": "a model from one format into another: Hugging Face, llm.c, llama2.c",
    "evaluate": "loss on text, multiple choice by likelihood: how good a model is",
    "doctor": "what this machine has, what is wrong with it, and what mends it",
    "gradcheck": "every gradient against central differences",
    "parity": "one training step on NumPy's ops and on the kernels, compared tensor by tensor",
    "judge": "what the GPU's compiler makes of our kernels, on seven architectures",
    "bench": "our training step beside PyTorch's",
    "trace": "what a kernel does, thread by thread: numbers, pictures, a page to step through",
    "curves": "several runs in one picture",
    "lessons": "the course: notebooks to work through, what is done of them, a website of them",
    "simt": "CUDA kernels of a script, run and checked with no GPU",
}

if __name__ == "__main__":
    print("nanoeuler: a language model trained with every gradient written by hand. Its commands:\n")
    for name, purpose in COMMANDS.items():
        print(f"  python -m nanoeuler.{name:<10} {purpose}")
    print("\n--help after one of them lists its options.")
