"""Reads a YAML file with the types of the Google Cloud CLI's own client: a field that they do not have is an error.

Called by yaml.bats, where that CLI is installed: sdk_reads.py SDK-FOLDER Service|Job|Build FILE.
"""

import pathlib
import sys

sdk, kind, file = sys.argv[1:]
sys.path[:0] = [f"{sdk}/lib", f"{sdk}/lib/third_party"]

from googlecloudsdk.api_lib.util import messages  # noqa: E402
from googlecloudsdk.core import yaml  # noqa: E402
from googlecloudsdk.generated_clients.apis.cloudbuild.v1 import cloudbuild_v1_messages  # noqa: E402
from googlecloudsdk.generated_clients.apis.run.v1 import run_v1_messages  # noqa: E402

types = cloudbuild_v1_messages if kind == "Build" else run_v1_messages
messages.DictToMessageWithErrorCheck(yaml.load(pathlib.Path(file).read_text()), getattr(types, kind))
