"""Settings: a second name of ``torch.fx.config``.

Setting a value through either name sets it for both packages.
"""

import sys

import torch.fx.config

sys.modules[__name__] = torch.fx.config
