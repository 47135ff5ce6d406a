"""Dropout whose masks are the same whoever computes a sample, so that results do not depend on the number of trainers.

torch's own draws from a generator: what a sample gets then depends on all that was drawn before on that trainer. Here a
mask is a pure function of the training's seed, the module's number in the model, the step and the sample's number in
the global batch. It is made of integer operations alone, which are exact on every device.

Legend: `n` samples of a slice, `U` numbers that a module is given of each sample.
"""

import torch
from torch import Tensor, nn

_GOLDEN = 0x9E3779B97F4A7C15
_FACTORS = 0xBF58476D1CE4E5B9, 0x94D049BB133111EB
_WORD = 1 << 64
_MOST = 0.999
_NO_PASS = -1


class Dropout(nn.Module):
    """Sets each number to zero with probability `p` while it trains, and divides the others by `1 - p`.

    In evaluations it does nothing. A module that is called several times in a forward pass draws anew each time. What a
    backward pass computes once more (`torch.utils.checkpoint`) has the same mask again, if the module is called once in
    a forward pass; if it is called several times, that is an error. The engine says which step and which samples a pass
    is of: in a loop of your own, `DropoutMasks` does.

    Args:
        p: from 0 to 0.999.

    Raises:
        ValueError: p is another number.
    """

    def __init__(self, p: float = 0.5) -> None:
        super().__init__()
        if not 0 <= p <= _MOST:
            raise ValueError(f"Dropout: p = {p!r}: use a number from 0 to {_MOST}")
        self.p = p
        self._key = 0
        self._calls = 0
        self._samples: Tensor | None = None

    def begin(self, key: int, samples: Tensor) -> None:
        """Say which pass comes next.

        Args:
            key: stands for the seed, the step and the module, from 0, below 2**64.
            samples: numbers of the slice's samples in the global batch, int64 `[n]`.
        """
        self._key, self._samples, self._calls = key, samples, 0

    def forward(self, inputs: Tensor) -> Tensor:
        """`[n, ...]` of any floating type, to the same shape and type.

        Raises:
            RuntimeError: the samples of the pass are not known, or not as many, or a backward pass computes a call once
                more of which nothing says which it is.
        """
        if not self.training or not self.p:
            return inputs
        if self._samples is None:
            raise RuntimeError("Dropout: nobody has said which step and samples these are; see DropoutMasks.begin")
        if not inputs.dim() or len(inputs) != len(self._samples):
            raise RuntimeError(
                f"Dropout: inputs of shape {list(inputs.shape)} in a pass of {len(self._samples)} samples: let the "
                "first dimension be the samples"
            )
        call = self._number_call()
        units = inputs[0].numel() if len(inputs) else 0
        kept = kept_units(_hash(self._key, call), self._samples, units, self.p)
        return (inputs * (kept.reshape(inputs.shape) * (1 / (1 - self.p)))).to(inputs.dtype)

    def _number_call(self) -> int:
        """Which call of the forward pass this is, from 1."""
        if torch._C._current_graph_task_id() == _NO_PASS:  # as torch.utils.checkpoint asks
            self._calls += 1
        elif self._calls > 1:
            raise RuntimeError(
                f"Dropout: a backward pass computes one of the module's {self._calls} calls once more, and nothing "
                "says which: use a module for each call, or leave it out of torch.utils.checkpoint"
            )
        return self._calls

    def extra_repr(self) -> str:
        """The probability, for torch's description of a model."""
        return f"p={self.p}"


class DropoutMasks:
    """Draws the masks of all `Dropout` modules of a model; true where it has any.

    Args:
        model: whose modules are numbered in the order of `modules()`.
        seed: of the training, from 0, below 2**64.
    """

    def __init__(self, model: nn.Module, seed: int) -> None:
        self._modules = [module for module in model.modules() if isinstance(module, Dropout)]
        self._seed = seed

    def __bool__(self) -> bool:
        return bool(self._modules)

    def begin(self, step: int, samples: Tensor) -> None:
        """Say which pass is next.

        Args:
            step: number of the training step, from 1.
            samples: numbers of the slice's samples in the global batch, int64 `[n]`, on the model's device.
        """
        for number, module in enumerate(self._modules):
            module.begin(_hash(self._seed, step, number), samples)


def kept_units(key: int, samples: Tensor, units: int, p: float) -> Tensor:
    """Which numbers stay, float32 `[n, U]` of 0 and 1.

    Each sample has a stream of its own, SplitMix64 (Steele, Lea, Flood 2014), that begins with a hash of the key and
    the sample's number. Each of its numbers decides two units, by 32 bits each.

    Args:
        key: from 0, below 2**64.
        samples: int64 `[n]`.
        units: U.
        p: probability of a zero, rounded to 32 bits.
    """
    starts = mixed(samples * _signed(_GOLDEN) + _signed(key)).unsqueeze(1)
    places = torch.arange(1, units // 2 + units % 2 + 1, device=samples.device)
    words = mixed(starts + places * _signed(_GOLDEN))
    drawn = words.view(torch.int32)[:, :units]  # the lower half of each word comes first: little-endian
    return (drawn >= round(p * 2**32) - 2**31).float()


def mixed(states: Tensor) -> Tensor:
    """SplitMix64's numbers of its states, all of 64 bits, int64 of any shape."""
    first, second = (_signed(factor) for factor in _FACTORS)
    words = (states ^ _shifted(states, 30)) * first
    words = (words ^ _shifted(words, 27)) * second
    return words ^ _shifted(words, 31)


def _shifted(words: Tensor, bits: int) -> Tensor:
    """Words shifted to the right, zeros coming in from the left; torch's shift brings in copies of the sign."""
    return (words >> bits) & ((1 << (64 - bits)) - 1)


def _signed(word: int) -> int:
    """The number from -2**63 that has the bits of a word from 0 to 2**64 - 1: torch counts with these."""
    return word - _WORD if word >= _WORD // 2 else word


def _hash(*numbers: int) -> int:
    """A word that stands for several numbers, all from 0 to 2**64 - 1."""
    state = 0
    for number in numbers:
        state = (state + number + _GOLDEN) % _WORD
        state = (state ^ state >> 30) * _FACTORS[0] % _WORD
        state = (state ^ state >> 27) * _FACTORS[1] % _WORD
        state ^= state >> 31
    return state
