"""A handful of items for every task, in files laid out exactly as those that are published."""

import json
from pathlib import Path
from typing import Any

HELLASWAG = [
    {
        "ind": 24,
        "activity_label": "Roof shingle removal",
        "ctx_a": "A man is sitting on a roof.",
        "ctx_b": "he",
        "ctx": "A man is sitting on a roof. he",
        "split": "val",
        "split_type": "indomain",
        "label": 3,
        "endings": [
            "sings a song.",
            "is ripping level tiles off.",
            "holds a cube.",
            "starts pulling up roofing on it.",
        ],
        "source_id": "activitynet~v_-JhWjGDPHMY",
    },
    {
        "ind": 31,
        "activity_label": "Home and Garden",
        "ctx_a": "[header] How to plant a fern [title] Choose a pot. [step] It should drain  well.",
        "ctx_b": "",
        "ctx": "[header] How to plant a fern [title] Choose a pot. [step] It should drain  well.",
        "split": "val",
        "split_type": "zeroshot",
        "label": 0,
        "endings": ["Clay is best. [substeps] Wash it.", " Paint it [title] Red.", "Paper does.", "Naïve pots crack."],
        "source_id": "wikihow~31",
    },
    {
        "ind": 40,
        "activity_label": "Canoeing",
        "ctx_a": "Two women in a canoe paddle down a river.",
        "ctx_b": "the boat",
        "ctx": "Two women in a canoe paddle down a river. the boat",
        "split": "val",
        "split_type": "indomain",
        "label": 1,
        "endings": ["flies.", "turns over in the rapids, and both swim ashore.", "is a car.", "eats."],
        "source_id": "activitynet~v_x",
    },
]
PIQA = [
    {"goal": "How do I ready a guinea pig cage for it's new occupants?", "sol1": "Bedding of paper.", "sol2": "Jeans."},
    {"goal": "dresser", "sol1": "replace drawer with bobby pin ", "sol2": "finish, woodgrain with  bobby pin "},
    {"goal": "To cool soup,", "sol1": "blow on it.", "sol2": "set it upon the stove until it has boiled for an hour."},
]
PIQA_LABELS = "0\n1\n0\n"
ARC = [
    {
        "id": "Mercury_7220990",
        "question": {
            "stem": "Which factor will most likely cause a person to develop a fever?",
            "choices": [
                {"text": "a leg muscle relaxing after exercise", "label": "A"},
                {"text": "a bacterial population in the bloodstream", "label": "B"},
                {"text": "several viral particles on the skin", "label": "C"},
                {"text": "carbohydrates", "label": "D"},
            ],
        },
        "answerKey": "B",
    },
    {
        "id": "NYSEDREGENTS_2012_8_11",
        "question": {
            "stem": "Which is hot?",
            "choices": [{"text": t, "label": str(i)} for i, t in enumerate(("ice", "fire", "snow", "fog", "rain"), 1)],
        },
        "answerKey": "2",
    },
    {
        "id": "TIMSS_1",
        "question": {
            "stem": "Fish breathe with",
            "choices": [{"text": "gills", "label": "A"}, {"text": "lungs of their own", "label": "B"}],
        },
        "answerKey": "A",
    },
]
WINOGRANDE = [
    {
        "qID": "3FCI4U7P9-1",
        "sentence": "Sarah was a much better surgeon than Maria so _ always got the easier cases.",
        "option1": "Sarah",
        "option2": "Maria",
        "answer": "2",
    },
    {
        "qID": "3FCI4U7P9-2",
        "sentence": "The trophy does not fit into the case because the _  is too small.",
        "option1": "trophy",
        "option2": "case",
        "answer": "2",
    },
    {
        "qID": "9-1",
        "sentence": "_ sang to Ann, so she slept.",
        "option1": "Bob",
        "option2": "Carla Maria",
        "answer": "1",
    },
]
LAMBADA = [
    {"text": 'In my palm is a clear stone.\n"Take it," he said, and gave me the stone'},
    {"text": "She had a dog, and it was called Rex. Each morning she would walk with Rex"},
    {"text": "helen's heart broke a little in the face of miss mabel's selfless courage . poor mabel"},
]
SUBJECTS = ("abstract_algebra", "world_religions")


def mmlu_rows(subject: str, split: str, count: int) -> list[list[str]]:
    """Return rows with everything in them that makes CSV awkward."""
    return [
        [
            f'{subject} {split} {i}: "what", is {i} + {i}?\nAnswer in words. ',
            f"{2 * i}",
            "none, of these",
            f"{3 * i + 1}",
            "all",
            "ABCD"[(i + len(split)) % 4],
        ]
        for i in range(count)
    ]


def write_all(folder: Path) -> dict[str, Path]:
    """Write the files of every task; return the path that stands for each."""
    paths = {
        "hellaswag": folder / "hellaswag_val.jsonl",
        "piqa": folder / "valid.jsonl",
        "arc": folder / "ARC-Easy-Test.jsonl",
        "winogrande": folder / "dev.jsonl",
        "lambada": folder / "lambada_test.jsonl",
        "mmlu": folder / "mmlu",
    }
    for name, items in (
        ("hellaswag", HELLASWAG),
        ("piqa", PIQA),
        ("arc", ARC),
        ("winogrande", WINOGRANDE),
        ("lambada", LAMBADA),
    ):
        write_jsonl(paths[name], items)
    (folder / "valid-labels.lst").write_text(PIQA_LABELS, encoding="utf-8")
    for split, count in (("test", 3), ("dev", 5)):
        (folder / "mmlu" / split).mkdir(parents=True)
        for subject in SUBJECTS:
            lines = (",".join(quoted(field) for field in row) for row in mmlu_rows(subject, split, count))
            path = folder / "mmlu" / split / f"{subject}_{split}.csv"
            path.write_bytes("".join(f"{line}\n" for line in lines).encode())
    return paths


def write_jsonl(path: Path, items: list[Any]) -> Path:
    """Write objects, one in a line."""
    path.write_text("".join(json.dumps(item, ensure_ascii=False) + "\n" for item in items), encoding="utf-8")
    return path


def quoted(field: str) -> str:
    """Return a field of CSV, in quotes where it needs them."""
    return '"' + field.replace('"', '""') + '"' if set(field) & set('",\n') else field
