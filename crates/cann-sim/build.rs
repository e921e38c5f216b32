//! Gives the shared library the name that torch_npu's libraries ask for.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libascendcl.so");
}
