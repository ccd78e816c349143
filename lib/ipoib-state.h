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

#ifndef IPOIB_STATE_H
#define IPOIB_STATE_H 1

/* What a partition remembers over a restart of the daemon: its hosts, which
 * are announced under their new QPNs, and its neighbours, whose stand-in MACs
 * are still in the caches of hosts.  With the HCA's mutex, unless said
 * otherwise. */

#include "ipoib-partition.h"

/* Neighbours beyond this number, the least recently heard ones, are not
 * written. */
#define IPOIB_STATE_MAX_NEIGHBOURS 16384

/* The hosts and neighbours of 'part' as text, which the caller frees. */
char *ipoib_state_to_text(const struct ipoib_partition *part);

/* Writes 'text' to 'file', by way of a temporary file, so that 'file' is
 * always whole.  0 or a positive errno value.  The disk may take its time; no
 * mutex is needed. */
int ipoib_state_write(const char *text, const char *file);

/* Learns what 'file' says, if it is of this partition and not older than hosts
 * and neighbours may be.  A file that is not there or malformed teaches
 * nothing.  Returns the number of hosts and neighbours. */
size_t ipoib_state_load(struct ipoib_partition *part, const char *file);

#endif /* ipoib-state.h */
