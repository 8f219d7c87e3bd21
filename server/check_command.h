// `quarryd --check DIR`.
#ifndef QUARRY_SERVER_CHECK_COMMAND_H_
#define QUARRY_SERVER_CHECK_COMMAND_H_

#include <string>

namespace quarry::server {

// Prints what is found to stdout, what is bad to stderr. 0: all is good; 1: something is not, or
// it cannot be checked.
int RunCheck(const std::string& dir);

}  // namespace quarry::server

#endif  // QUARRY_SERVER_CHECK_COMMAND_H_
