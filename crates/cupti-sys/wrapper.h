// What the bindings are generated from; the exact command is in README.md.
#include <cupti.h>
