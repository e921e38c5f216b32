//! Raw declarations of the AscendCL runtime C API.
