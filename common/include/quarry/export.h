// Marks what libquarry_client.so exports; everything else in it is hidden.
#ifndef QUARRY_EXPORT_H_
#define QUARRY_EXPORT_H_

#define QUARRY_EXPORT __attribute__((visibility("default")))

#endif  // QUARRY_EXPORT_H_
