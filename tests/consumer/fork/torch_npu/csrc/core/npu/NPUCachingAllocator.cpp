#error "npualloc takes this file's place; the build must leave it out"
