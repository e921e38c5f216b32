//! Compares this crate with the ACL headers through a C compiler: the value of
//! every constant, the size and the field offsets of every structure, and the
//! name and number of arguments of every function.
//!
//! The headers are looked for in the directory that `NPUALLOC_ACL_INCLUDE`
//! names (the one with `acl/acl_rt.h` in it), then in the torch_npu wheels under
//! `~/.cache/npualloc/venv-*`. Without headers, or without a C compiler, the
//! tests print why and do nothing.

use std::collections::BTreeMap;
use std::env;
use std::fs;
use std::mem::{offset_of, size_of};
use std::path::{Path, PathBuf};
use std::process::Command;

use ascend_rs_sys::*;

const SOURCES: &[&str] = &[
    include_str!("../src/base.rs"),
    include_str!("../src/capture.rs"),
    include_str!("../src/device.rs"),
    include_str!("../src/error.rs"),
    include_str!("../src/event.rs"),
    include_str!("../src/memory.rs"),
    include_str!("../src/stream.rs"),
    include_str!("../src/uce.rs"),
    include_str!("../src/vmm.rs"),
];

/// Constants that no header defines: a documented size, not a macro.
const NOT_IN_HEADERS: &[&str] = &["ACL_RT_IPC_MEM_KEY_LEN"];

fn include_dir() -> Option<PathBuf> {
    if let Some(dir) = env::var_os("NPUALLOC_ACL_INCLUDE") {
        return Some(dir.into());
    }
    let cache = PathBuf::from(env::var_os("HOME")?).join(".cache/npualloc");
    let children = |dir: &Path| {
        let entries = fs::read_dir(dir).into_iter().flatten().flatten();
        entries.map(|entry| entry.path()).collect::<Vec<_>>()
    };
    children(&cache)
        .iter()
        .flat_map(|venv| children(&venv.join("lib")))
        .map(|lib| lib.join("site-packages/torch_npu/include"))
        .find(|dir| dir.join("acl/acl_rt.h").is_file())
}

/// The headers, unless they or a compiler are missing.
fn headers() -> Option<PathBuf> {
    let Some(dir) = include_dir() else {
        eprintln!("skipped: no ACL headers (set NPUALLOC_ACL_INCLUDE)");
        return None;
    };
    if Command::new("cc").arg("--version").output().is_err() {
        eprintln!("skipped: no C compiler `cc`");
        return None;
    }
    Some(dir)
}

/// Compiles and runs a C program that prints `name value` lines.
fn ask_c(name: &str, include: &Path, body: &str) -> BTreeMap<String, i128> {
    let dir = env::temp_dir().join(format!("acl-layout-{}-{name}", std::process::id()));
    fs::create_dir_all(&dir).unwrap();
    let (source, program) = (dir.join("ask.c"), dir.join("ask"));
    let text = format!(
        "#include <stddef.h>\n#include <stdio.h>\n#include <stdbool.h>\n#include \"acl/acl_rt.h\"\n\
         #include \"acl/error_codes/rt_error_codes.h\"\nint main(void) {{\n{body}return 0;\n}}\n"
    );
    fs::write(&source, text).unwrap();
    let compile = Command::new("cc")
        .args(["-w", "-std=gnu11", "-I"])
        .arg(include)
        .args([&source, Path::new("-o"), &program])
        .output()
        .unwrap();
    assert!(
        compile.status.success(),
        "{}",
        String::from_utf8_lossy(&compile.stderr)
    );
    let output = Command::new(&program).output().unwrap();
    fs::remove_dir_all(&dir).unwrap();
    String::from_utf8(output.stdout)
        .unwrap()
        .lines()
        .map(|line| {
            let (name, value) = line.split_once(' ').unwrap();
            (name.to_string(), value.parse().unwrap())
        })
        .collect()
}

/// Name and value of every `pub const` of the sources.
fn constants() -> BTreeMap<String, i128> {
    let lines = SOURCES.iter().flat_map(|source| source.lines());
    lines
        .filter_map(|line| {
            let (name, rest) = line.trim().strip_prefix("pub const ")?.split_once(':')?;
            let value = rest
                .split_once('=')?
                .1
                .trim()
                .trim_end_matches(';')
                .replace('_', "");
            let value = match value.strip_prefix("0x") {
                Some(hex) => i128::from_str_radix(hex, 16),
                None => value.parse(),
            };
            Some((
                name.to_string(),
                value.unwrap_or_else(|_| panic!("cannot read {line}")),
            ))
        })
        .collect()
}

#[test]
fn constants_are_those_of_the_headers() {
    let Some(include) = headers() else { return };
    let mut own = constants();
    for name in NOT_IN_HEADERS {
        assert!(
            own.remove(*name).is_some(),
            "{name} is no constant of this crate"
        );
    }
    assert!(
        own.len() > 300,
        "only {} constants were found in the sources",
        own.len()
    );
    let body: String = own
        .keys()
        .map(|name| format!("printf(\"{name} %lld\\n\", (long long)({name}));\n"))
        .collect();
    assert_eq!(own, ask_c("constants", &include, &body));
}

macro_rules! layouts {
    ($($name:ident { $($field:ident $c_field:literal),* })*) => {{
        let mut own = BTreeMap::new();
        let mut body = String::new();
        $(
            let name = stringify!($name);
            own.insert(name.to_string(), size_of::<$name>() as i128);
            body += &format!("printf(\"{name} %zu\\n\", sizeof({name}));\n");
            $(
                own.insert(format!("{name}.{}", $c_field), offset_of!($name, $field) as i128);
                body += &format!(
                    "printf(\"{name}.{0} %zu\\n\", offsetof({name}, {0}));\n", $c_field
                );
            )*
        )*
        (own, body)
    }};
}

#[test]
fn structures_are_laid_out_as_in_the_headers() {
    let Some(include) = headers() else { return };
    let (own, body) = layouts! {
        aclrtMallocAttrValue {}
        aclrtMallocAttribute { attr "attr", value "value" }
        aclrtMallocConfig { attrs "attrs", numAttrs "numAttrs" }
        aclrtMemLocation { id "id", r#type "type" }
        aclrtPtrAttributes { location "location", pageSize "pageSize", rsv "rsv" }
        aclrtMemUsageInfo { name "name", curMemSize "curMemSize", memPeakSize "memPeakSize",
            reserved "reserved" }
        aclrtMemcpyBatchAttr { dstLoc "dstLoc", srcLoc "srcLoc", rsv "rsv" }
        aclrtMemFabricHandle { data "data" }
        aclrtPhysicalMemProp { handleType "handleType", allocationType "allocationType",
            memAttr "memAttr", location "location", reserve "reserve" }
        aclrtMemAccessDesc { flags "flags", location "location", rsv "rsv" }
        aclrtIpcEventHandle { reserved "reserved" }
        aclrtUtilizationInfo { cubeUtilization "cubeUtilization",
            vectorUtilization "vectorUtilization", aicpuUtilization "aicpuUtilization",
            memoryUtilization "memoryUtilization", utilizationExtend "utilizationExtend" }
        aclrtMemUceInfo { addr "addr", len "len", reserved "reserved" }
        aclrtMemUceInfoArray { arraySize "arraySize", memUceInfoArray "memUceInfoArray" }
        aclrtErrorInfoDetail {}
        aclrtErrorInfo { tryRepair "tryRepair", hasDetail "hasDetail", reserved "reserved",
            errorType "errorType", detail "detail" }
        aclrtMemcpyKind {}
        aclrtMemMallocPolicy {}
        aclrtMemAttr {}
        aclrtEventRecordedStatus {}
        aclmdlRICaptureMode {}
        aclError {}
        aclDataType {}
        aclrtStream {}
        aclrtDrvMemHandle {}
    };
    assert_eq!(own, ask_c("layouts", &include, &body));
}

/// Number of arguments of the first declaration of `name` in a text, whose
/// arguments hold no parentheses.
fn arguments(text: &str, name: &str) -> Option<usize> {
    let start = text.match_indices(name).find_map(|(at, _)| {
        let after = at + name.len();
        let whole = !text[..at].ends_with(|c: char| c.is_alphanumeric() || c == '_');
        (whole && text[after..].starts_with('(')).then_some(after + 1)
    })?;
    let list = text[start..start + text[start..].find(')')?].trim();
    let list = list.trim_end_matches(',').trim();
    Some(if list.is_empty() || list == "void" {
        0
    } else {
        list.matches(',').count() + 1
    })
}

#[test]
fn functions_are_declared_in_the_headers_with_as_many_arguments() {
    let Some(include) = headers() else { return };
    let text: String = ["acl_rt.h", "acl_base_rt.h", "acl_base.h", "acl.h"]
        .iter()
        .map(|file| fs::read_to_string(include.join("acl").join(file)).unwrap())
        .collect();
    let mut checked = 0;
    for source in SOURCES {
        for (at, _) in source.match_indices("pub fn ") {
            let declaration = &source[at + "pub fn ".len()..];
            let name = &declaration[..declaration.find('(').unwrap()];
            let own = arguments(declaration, name);
            assert_eq!(own, arguments(&text, name), "{name}");
            assert!(own.is_some(), "{name}");
            checked += 1;
        }
    }
    assert!(
        checked > 80,
        "only {checked} functions were found in the sources"
    );
}
