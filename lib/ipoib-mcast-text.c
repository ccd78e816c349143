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
#include "ipoib-mcast.h"

#include <errno.h>

/* Groups, for people. */

const char *
ipoib_mcast_failure(const struct ipoib_mcast_group *group)
{
    switch (group->last_error) {
    case 0: return (group->last_status
                    ? ib_sa_status_to_string(group->last_status) : NULL);
    case ETIMEDOUT: return "no answer from the subnet administrator";
    case EMSGSIZE: return "its MTU is larger than the port's";
    case EBADR: return "its Q_Key is not the broadcast group's";
    case EPROTO: return "the answer makes no sense";
    default: return ovs_strerror(group->last_error);
    }
}

const char *
ipoib_mcast_state_to_string(enum ipoib_mcast_state state)
{
    switch (state) {
    case IPOIB_MCAST_IDLE: return "idle";
    case IPOIB_MCAST_JOINING: return "joining";
    case IPOIB_MCAST_JOINED: return "joined";
    case IPOIB_MCAST_LEAVING: return "leaving";
    default: OVS_NOT_REACHED();
    }
}
