"""Where private examples come from: embedded pictures, the usual benchmarks, and a user's own files."""

from leakgauge.data.arrays import Npz, read_batch, read_images
from leakgauge.data.cifar import Cifar10, Cifar100
from leakgauge.data.datasets import Dataset, DataSource
from leakgauge.data.digits import Digits
from leakgauge.data.folders import ImageFolder, PictureFolder
from leakgauge.data.mnist import Mnist
from leakgauge.data.photos import Photos, reference_images, reference_inputs
from leakgauge.data.tables import BreastCancer, Csv, Diabetes
