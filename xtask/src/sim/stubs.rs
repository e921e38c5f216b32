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
            "    .section .rodata.names,\"aMS\",@progbits,1\n.L{name}_name: .asciz \"{name}\"\n"
        )?;
        if name.ends_with("WorkspaceSize") {
            stub(&mut out, name, "", "prepare")?;
        } else {
            stub(&mut out, name, "GetWorkspaceSize", "prepare")?;
            stub(&mut out, name, "", "launch")?;
        }
    }
    out.push_str("    .section .note.GNU-stack,\"\",@progbits\n");
    Ok(out)
}

/// One exported label that hands its operator's name to a common tail.
fn stub(out: &mut String, name: &str, suffix: &str, tail: &str) -> std::fmt::Result {
    write!(
        out,
        "\
    .text
    .globl {name}{suffix}
    .type {name}{suffix}, @function
{name}{suffix}:
    leaq .L{name}_name(%rip), %r11
    jmp cann_sim_opapi_{tail}
    .size {name}{suffix}, .-{name}{suffix}
"
    )
}
