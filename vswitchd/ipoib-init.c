/*
 * Licensed under the Apache License, Version 2.0 (the "License");
 * you may not use this file except in compliance with the License.
 * You may obtain a copy of the License at:
 *
 *     http://www.apache.org/licenses/LICENSE-2.0
 *
 * Unless required by applicable law or agreed to in writing, software
 * distributed under the License is distributed on an "AS IS" BASIS,
 * WITHOUT WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied.
 * See the License for the specific language governing permissions and
 * limitations under the License.
 */

#include <config.h>
#include "netdev-ipoib.h"

/* The linker redirects the stock daemon's call of bridge_init() to
 * __wrap_bridge_init() (-Wl,--wrap=bridge_init): the class is registered when
 * the daemon is in the background, and after --enable-dummy has replaced
 * those classes that it replaces. */

void __real_bridge_init(const char *remote);
void __wrap_bridge_init(const char *remote);

void
__wrap_bridge_init(const char *remote)
{
    netdev_ipoib_register();
    __real_bridge_init(remote);
}
