//! Assembly of the operator exports: two labels for each name, which all jump
//! to the two common tails in `crates/cann-sim/opapi/`.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result, ensure};

/// Reads the list of names (one a line, `#` starts a comment) and returns the
/// assembly source.
pub fn generate(names: &Path) -> Result<String> {
    let text = fs::read_to_string(names).with_context(|| format!("read {}", names.display()))?;
    let mut out = String::from("    .text\n");
    for (number, line) in text.lines().enumerate() {
        let name = line.split('#').next().unwrap_or_default().trim();
        if name.is_empty() {
            continue;
        }
        ensure!(
            name.starts_with("acl") && name.bytes().all(|b| b.is_ascii_alphanumeric()),
            "{}:{}: {name:?} is no operator name",
            names.display(),
            number + 1
        );
        write!(
            out,
            "\
    .section .rodata.names,\"aMS\",@progbits,1
.L{name}_name: .asciz \"{name}\"
    .text
    .globl {name}GetWorkspaceSize, {name}
    .type {name}GetWorkspaceSize, @function
    .type {name}, @function
{name}GetWorkspaceSize:
    leaq .L{name}_name(%rip), %r11
    jmp cann_sim_opapi_prepare
    .size {name}GetWorkspaceSize, .-{name}GetWorkspaceSize
{name}:
    leaq .L{name}_name(%rip), %r11
    jmp cann_sim_opapi_launch
    .size {name}, .-{name}
"
        )?;
    }
    out.push_str("    .section .note.GNU-stack,\"\",@progbits\n");
    Ok(out)
}
