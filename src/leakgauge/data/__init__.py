"""Where private examples come from: embedded pictures, the usual benchmarks, and a user's own files."""

from leakgauge.data.arrays import Npz, read_batch, read_images, read_references
from leakgauge.data.augmentation import augment_images, in_tones_of, resample_rows, resample_texts
from leakgauge.data.cifar import Cifar10, Cifar100
from leakgauge.data.datasets import Dataset, DataSource, share_picture, share_pixels
from leakgauge.data.digits import Digits
from leakgauge.data.folders import ImageFolder, PictureFolder, read_pictures
from leakgauge.data.mnist import Mnist
from leakgauge.data.photos import (
    PHOTOGRAPHS,
    STRANGERS,
    Photos,
    Split,
    count_references,
    reference_batch,
    reference_images,
    reference_inputs,
)
from leakgauge.data.tables import BreastCancer, Csv, Diabetes
from leakgauge.data.texts import Text
