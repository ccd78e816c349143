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
#include "ipoib-kernel.h"

#include <dirent.h>
#include <errno.h>
#include <net/if.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "hash.h"
#include "ipoib-wire.h"
#include "util.h"

#define ARPHRD_IPOIB 32

/* Reads the number in 'file' of the network device whose directory is 'dir'.
 * Returns 'def' if there is none. */
static unsigned long int
read_number(const char *dir, const char *file, unsigned long int def)
{
    char *path = xasprintf("%s/%s", dir, file);
    FILE *stream = fopen(path, "r");
    char line[32];

    if (stream) {
        if (fgets(line, sizeof line, stream)) {
            def = strtoul(line, NULL, 0);
        }
        fclose(stream);
    }
    free(path);
    return def;
}

/* True if the network device whose directory is 'dir' is IPoIB in that
 * partition. */
static bool
is_partitions(const char *dir, const char *device, uint8_t port,
              uint16_t pkey)
{
    char *path;
    bool same;

    if (read_number(dir, "type", 0) != ARPHRD_IPOIB
        || read_number(dir, "dev_port", 0) + 1 != port
        || (read_number(dir, "pkey", 0) ^ pkey) & IB_PKEY_MASK) {
        return false;
    }
    path = xasprintf("%s/device/infiniband/%s", dir, device);
    same = !access(path, F_OK);
    free(path);
    return same;
}

void
ipoib_kernel_find(const char *sysfs, const char *device, uint8_t port,
                  uint16_t pkey, struct ipoib_kernel_netdev *netdev)
{
    char *top = xasprintf("%s/class/net", sysfs);
    DIR *stream = opendir(top);
    const struct dirent *de;

    memset(netdev, 0, sizeof *netdev);
    while (stream && (de = readdir(stream)) != NULL) {
        char *dir;

        if (de->d_name[0] == '.') {
            continue;
        }
        dir = xasprintf("%s/%s", top, de->d_name);
        if (is_partitions(dir, device, port, pkey)) {
            unsigned int flags = read_number(dir, "flags", 0);
            unsigned int carrier = read_number(dir, "carrier", 0);

            /* In whatever order they come. */
            netdev->hash += hash_string(de->d_name,
                                        hash_2words(flags & IFF_UP, carrier));
            if (flags & IFF_UP) {
                ovs_strlcpy(netdev->name, de->d_name, sizeof netdev->name);
            }
        }
        free(dir);
    }
    if (stream) {
        closedir(stream);
    }
    free(top);
}
