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

#ifndef FABRIC_COMMANDS_H
#define FABRIC_COMMANDS_H 1

/* The commands of the fabric for ovs-appctl. */

#include "fabric.h"

void fabric_commands_init(struct fabric *);

char *fabric_parse_pkeys(const char *, uint16_t pkeys[IB_SOFT_MAX_PKEYS],
                         size_t *n);
char *fabric_parse_mtu(const char *, uint8_t *);

#endif /* fabric-commands.h */
