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

#ifndef NETDEV_IPOIB_H
#define NETDEV_IPOIB_H 1

/* Registers the netdev class "ipoib" and its ovs-appctl commands.  Called once
 * by the main thread, when the daemon is in the background and before the
 * first bridge is made. */
void netdev_ipoib_register(void);

#endif /* netdev-ipoib.h */
