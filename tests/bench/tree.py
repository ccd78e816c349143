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

"""The build tree that is measured."""

import re


def variable(build, name):
    """What configure found, from the Makefile; empty if there is none."""
    makefile = build / "Makefile"
    found = re.search(rf"^{name} *= *(.*)$",
                      makefile.read_text() if makefile.exists() else "", re.M)
    return found.group(1).strip() if found else ""
