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

#ifndef IPOIB_SA_INFORM_H
#define IPOIB_SA_INFORM_H 1

/* The subscription to what the subnet administrator reports of multicast
 * groups: traps 66 (created) and 67 (deleted), by InformInfo (InfiniBand,
 * 13.4.8.3).
 *
 * A subnet manager that starts anew knows nothing of it, and a report may get
 * lost for good: it is made again after each event, and about every 5 minutes,
 * and each time the user is told to look at what there is.
 *
 * Thread-safety: none (control thread). */

#include <stdbool.h>
#include <stdint.h>
#include "ipoib-sa.h"

struct ipoib_inform;

/* The reports come from now on; what was before is not known. */
typedef void ipoib_inform_cb(void *aux);

struct ipoib_inform *ipoib_inform_create(struct ipoib_sa *,
                                         ipoib_inform_cb *, void *aux);
void ipoib_inform_destroy(struct ipoib_inform *);

/* Subscribes, or ends that. */
void ipoib_inform_want(struct ipoib_inform *, bool want);
/* The queue pair of the transport, that is to say who has subscribed; 0 as
 * long as there is none. */
void ipoib_inform_set_qpn(struct ipoib_inform *, uint32_t qpn);
/* The subnet manager may be another one: subscribes again. */
void ipoib_inform_restart(struct ipoib_inform *);

void ipoib_inform_run(struct ipoib_inform *, long long int now);
void ipoib_inform_wait(const struct ipoib_inform *);

/* True if the reports come. */
bool ipoib_inform_is_active(const struct ipoib_inform *);

#endif /* ipoib-sa-inform.h */
