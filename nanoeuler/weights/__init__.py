"""Weights from elsewhere and for elsewhere: every format is a reader and a writer around one mapping.

What a model file holds is first described (:class:`ModelFiles`: configuration, and tensors under Hugging Face's names,
none of them read), then checked, and only then read into one flat buffer::

    mapping           our weights under Hugging Face's names, as views
    tensors           a tensor before it is read; all of them into a flat buffer
    hf_config         config.json to ModelConfig and back, and what is refused
    safetensors_file  one file of tensors: its header, its tensors, writing
    directory         a Hugging Face folder: configuration, one file or many with an index, tokenizer
    binary            tensors that lie in a file one after the other
    llmc              llm.c's .bin
    llama2c           llama2.c's .bin
    hub               a hub's id to a folder
    pretrained        any of these by its path or id: what it is, and the model in it
    statistics        a tensor's numbers in a few, and listing: those of a model as rows for people
"""

from nanoeuler.weights.model_files import ModelFiles
from nanoeuler.weights.pretrained import Pretrained, load_pretrained, open_model
from nanoeuler.weights.tensors import Tensor

__all__ = ["ModelFiles", "Pretrained", "Tensor", "load_pretrained", "open_model"]
