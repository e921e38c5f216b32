//! Generates and compiles the C++ half of the bridge; it ends up in `libnpualloc.a`.

fn main() {
    cxx_build::bridge("src/bridge/mod.rs")
        .include("include")
        .std("c++20")
        // Nothing of the bridge may be visible outside the library that links it.
        .flag_if_supported("-fvisibility=hidden")
        .compile("npualloc_bridge");
    println!("cargo:rerun-if-changed=src/bridge/mod.rs");
    println!("cargo:rerun-if-changed=include/npualloc/driver_table.h");
}
