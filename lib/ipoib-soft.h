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

#ifndef IPOIB_SOFT_H
#define IPOIB_SOFT_H 1

/* The software HCA, beyond the table 'ipoib_verbs_soft' (ipoib-verbs.h). */

#include <stdint.h>

struct ds;
struct ibv_context;

/* What the node descriptions of devices that attach from now on say after the
 * machine's name, instead of the device's name. */
void ipoib_soft_set_description(const char *);

/* Appends the state of the port and every counter that is not 0 of 'ctx', a
 * device of the software HCA, to 'ds', one "name: value" a line. */
void ipoib_soft_counters(struct ibv_context *ctx, struct ds *ds);

/* The value of the counter 'name', 0 if there is none of that name. */
uint64_t ipoib_soft_counter(struct ibv_context *ctx, const char *name);

/* Has the device of 'ctx' fail, as if its hardware had been removed: it
 * reports that, and cannot be opened again for 'msec'.  For tests.  Returns 0,
 * or EOPNOTSUPP if it cannot fail so. */
int ipoib_soft_fail(struct ibv_context *ctx, int msec);

#endif /* ipoib-soft.h */
