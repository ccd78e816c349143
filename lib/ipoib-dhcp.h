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

#ifndef IPOIB_DHCP_H
#define IPOIB_DHCP_H 1

/* What DHCP (RFC 2131, RFC 4390) needs of a gateway. */

#include <stdbool.h>
#include <stddef.h>

/* If the IPv4 packet of 'len' bytes at 'ip' is the request of a DHCP client
 * that has no address yet, asks for no relay's help and can be answered by
 * unicast, sets its BROADCAST flag, with the right UDP checksum, and returns
 * true.  Nothing else of it is changed, whatever it is.
 *
 * A server answers such a client at the hardware address in 'chaddr', which
 * means nothing on the other side of the gateway.  With the flag, it answers
 * by broadcast. */
bool ipoib_dhcp_set_broadcast(void *ip, size_t len);

#endif /* ipoib-dhcp.h */
