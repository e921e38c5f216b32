"""The wheel holds shared libraries for this platform, but no extension module of one Python's."""

import os

from setuptools import setup
from setuptools.command.bdist_wheel import bdist_wheel


class PlatformWheel(bdist_wheel):
    def finalize_options(self):
        super().finalize_options()
        self.root_is_pure = False

    def get_tag(self):
        _, _, platform = super().get_tag()
        return "py3", "none", platform


setup(version=os.environ["NPUALLOC_VERSION"], cmdclass={"bdist_wheel": PlatformWheel})
