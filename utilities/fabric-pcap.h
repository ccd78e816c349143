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

#ifndef FABRIC_PCAP_H
#define FABRIC_PCAP_H 1

/* Captures of the fabric: pcap, link type 197 (ERF, record type 21). */

#include <stddef.h>

struct fabric_pcap;

int fabric_pcap_open(const char *file_name, struct fabric_pcap **);
void fabric_pcap_close(struct fabric_pcap *);
int fabric_pcap_write(struct fabric_pcap *, const void *packet, size_t);
const char *fabric_pcap_name(const struct fabric_pcap *);

#endif /* fabric-pcap.h */
