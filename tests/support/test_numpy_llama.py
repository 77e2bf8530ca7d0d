"""The reference decoder says what the real checkpoint is known to say."""

from __future__ import annotations

import numpy as np

from poot.llm.config import read_llama_config
from poot.llm.tokenizer import read_tokenizer
from tests.support.numpy_llama import numpy_llama
from tests.support.smollm2 import smollm2


def test_the_capital_of_france_continues_as_known():
    file = smollm2()
    config = read_llama_config(file)
    tokenizer = read_tokenizer(file.metadata, "smollm2")
    model = numpy_llama(file, config)
    ids = tokenizer.encode("The capital of France is")
    logits = model(ids[:2])[-1:], model(ids[2:])
    tokens = [int(np.argmax(logits[1][-1]))]
    tokens.append(int(np.argmax(model(tokens)[-1])))
    assert tokenizer.decode(tokens) == " Paris."
    assert model.length == len(ids) + 1
