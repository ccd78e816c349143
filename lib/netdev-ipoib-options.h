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

#ifndef NETDEV_IPOIB_OPTIONS_H
#define NETDEV_IPOIB_OPTIONS_H 1

/* The options of type=ipoib.
 *
 * Thread-safety: none. */

#include <stdbool.h>
#include "ipoib-dev.h"
#include "ipoib-vlan.h"

struct smap;

/* Parses 'args', of netdev 'name', into 'options', whose 'device' belongs to
 * the caller in any case, and 'vlans'.  If something is wrong, returns false,
 * and '*errp' says what, with the option and the value. */
bool netdev_ipoib_parse_options(const char *name, const struct smap *args,
                                struct ipoib_dev_options *options,
                                struct ipoib_vlan_map *vlans, char **errp);

/* Says which of 'args' the class does not know, since a typing error is easy
 * to make and hard to see. */
void netdev_ipoib_log_unknown_options(const char *name,
                                      const struct smap *args);

/* Adds to 'args' what netdev_ipoib_parse_options() makes the same of. */
void netdev_ipoib_format_options(const struct ipoib_dev_options *options,
                                 const struct ipoib_vlan_map *vlans,
                                 struct smap *args);

#endif /* netdev-ipoib-options.h */
