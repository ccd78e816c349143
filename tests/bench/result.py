# Licensed under the Apache License, Version 2.0 (the "License");
# you may not use this file except in compliance with the License.
# You may obtain a copy of the License at:
#
#     http://www.apache.org/licenses/LICENSE-2.0
#
# Unless required by applicable law or agreed to in writing, software
# distributed under the License is distributed on an "AS IS" BASIS,
# WITHOUT WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied.
# See the License for the specific language governing permissions and
# limitations under the License.
"""The files that "judge", "plot" and "record" read."""

import json
import pathlib
import sys


def read_json(path, is_good, what):
    """What is in 'path', if that is JSON and good; else exits."""
    try:
        content = json.loads(pathlib.Path(path).read_text())
    except ValueError:          # No JSON, or no text at all.
        content = None
    if not is_good(content):
        sys.exit(f"{path}: not {what}")
    return content


def are_objects(content):
    return (isinstance(content, list)
            and all(isinstance(element, dict) for element in content))


def read_result(path):
    """What "run" measured, or "record" recorded."""
    return read_json(path, lambda content: isinstance(content, dict)
                     and isinstance(content.get("facts"), dict)
                     and are_objects(content.get("records")),
                     "a result of benchmarks, such as bench.json")


def read_targets(path):
    return read_json(path, lambda content: are_objects(content)
                     and all("figure" in target for target in content),
                     "targets, such as targets.json")
