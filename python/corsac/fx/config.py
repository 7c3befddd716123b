"""Settings: this module is ``torch.fx.config`` under a second name.

Setting a value through either name sets it for both packages.
"""

import sys

import torch.fx.config

sys.modules[__name__] = torch.fx.config
