"""Training images encrypted by mixing and sign flips: Mixup and InstaHide, with one-time keys.

The mask hides signs and nothing else; see ``docs/instahide.md`` for what these schemes do not protect.
"""

from leakgauge.encodings.keys import KeySource, SecureKeys, SeededKeys
from leakgauge.encodings.schemes import CrossDataset, InsideDataset, Mixup, Scheme, Secret, encrypt
