//! The Python with torch and torch_npu: the caller's own, or a virtual
//! environment in the cache that is made on first use.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};

use crate::apt;
use crate::cli::{Interpreter, Torch};
use crate::env::{Project, directory};
use crate::process::{self, say};

/// What the environment holds besides torch and torch-npu. torch_npu imports
/// more than its metadata asks for.
const PACKAGES: &[&str] = &[
    "attrs",
    "cloudpickle",
    "decorator",
    "ml-dtypes",
    "numpy",
    "psutil",
    "pytest",
    "pytest-xdist",
    "pyyaml",
    "scipy",
    "setuptools<82",
    "tornado",
];

/// Written last, so that an interrupted installation is seen as such.
const STAMP: &str = "npualloc-complete";

/// Would make another place's packages count as installed, or put packages elsewhere.
const ELSEWHERE: [&str; 5] = [
    "PYTHONPATH",
    "PYTHONHOME",
    "PIP_TARGET",
    "PIP_PREFIX",
    "PIP_USER",
];

/// Prints the version of torch where torch-npu is there as well.
const ASK_VERSION: &str = "
import importlib.metadata as metadata, sys
try:
    metadata.version('torch-npu')
    print(metadata.version('torch'))
except metadata.PackageNotFoundError as missing:
    sys.exit(f'{missing.name} is not installed')
";

/// An interpreter with torch and torch_npu.
#[derive(Clone)]
pub struct Python {
    /// The program.
    pub program: PathBuf,
    /// Version of its torch, without a local part.
    pub torch: String,
    /// Whether it is the project's own environment.
    pub managed: bool,
}

impl Python {
    /// The interpreter the arguments ask for.
    ///
    /// # Errors
    /// When the given one lacks torch or torch_npu, or the environment can't be made.
    pub fn find(project: &Project, arguments: &Interpreter) -> Result<Self> {
        match &arguments.python {
            Some(program) => Self::given(program),
            None => Self::managed(project, &arguments.torch),
        }
    }

    /// The project's own environment, made when it is not there yet.
    ///
    /// # Errors
    /// When there is no suitable Python, or an installation fails.
    pub fn managed(project: &Project, torch: &Torch) -> Result<Self> {
        let version = &torch.torch;
        let home = project.cache.join(format!("venv-{version}"));
        fs::create_dir_all(&project.cache)
            .with_context(|| format!("create {}", project.cache.display()))?;
        // Two commands at once must not make it both.
        let lock = project.cache.join(format!("venv-{version}.lock"));
        let lock = File::create(&lock).with_context(|| format!("create {}", lock.display()))?;
        lock.lock().context("lock the cached environment")?;

        let mut wanted = vec![format!("torch=={version}"), format!("torch-npu=={version}")];
        wanted.extend(PACKAGES.iter().map(|name| (*name).to_owned()));
        let program = home.join("bin/python");
        let stamp = home.join(STAMP);
        let installed = fs::read_to_string(&stamp).ok();
        let step = next_step(installed.as_deref(), &wanted, program.exists());
        if step != Step::Ready {
            if step == Step::Create {
                create(&home)?;
                say(&format!(
                    "installing torch and torch-npu {version} from PyPI into {} (about 5 GB)",
                    home.display()
                ));
                pip(&program).arg("--upgrade").arg("pip").check()?;
            } else {
                say(&format!("adding packages to {}", home.display()));
            }
            let installed_all = pip(&program).args(&wanted).check();
            if step == Step::Create && installed_all.is_err() {
                // There may be no such version.
                let _ = fs::remove_dir_all(&home);
            }
            installed_all?;
            has_all(&program, &wanted)?;
            let list = union(installed.as_deref(), &wanted);
            fs::write(&stamp, list).with_context(|| format!("write {}", stamp.display()))?;
        }
        Ok(Self {
            program,
            torch: version.clone(),
            managed: true,
        })
    }

    fn given(program: &Path) -> Result<Self> {
        // The metadata is asked, not the packages: torch_npu can't be imported
        // without a CANN runtime.
        let asked = Command::new(program)
            .args(["-c", ASK_VERSION])
            .output()
            .with_context(|| format!("start {}", program.display()))?;
        let [version, complaint] = [asked.stdout, asked.stderr]
            .map(|text| String::from_utf8_lossy(&text).trim().to_owned());
        ensure!(
            asked.status.success(),
            "{} has no torch with torch-npu: {complaint}",
            program.display()
        );
        let version = version.split('+').next().unwrap_or_default().to_owned();
        let program = if program.components().count() > 1 {
            std::path::absolute(program).context("make the path of Python absolute")?
        } else {
            program.to_path_buf()
        };
        Ok(Self {
            program,
            torch: version,
            managed: false,
        })
    }

    /// A command that runs this interpreter.
    pub fn command(&self) -> Command {
        let mut command = Command::new(&self.program);
        self.isolate(&mut command);
        command
    }

    /// Lets a command that starts this interpreter find no packages outside of the project's own environment.
    pub fn isolate(&self, command: &mut Command) {
        if self.managed {
            command.env_remove("PYTHONPATH").env_remove("PYTHONHOME");
        }
    }
}

/// What is to be done for an environment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Step {
    /// Everything is there.
    Ready,
    /// It is complete for another list, perhaps another checkout's: packages are added. Until that has succeeded it
    /// stays what it was.
    TopUp,
    /// There is none, or an incomplete one.
    Create,
}

fn next_step(stamp: Option<&str>, wanted: &[String], program: bool) -> Step {
    match stamp.filter(|_| program) {
        None => Step::Create,
        Some(list)
            if wanted
                .iter()
                .all(|one| list.lines().any(|line| line == one)) =>
        {
            Step::Ready
        }
        Some(_) => Step::TopUp,
    }
}

/// What an environment has after a step: what other checkouts asked for stays.
fn union(stamp: Option<&str>, wanted: &[String]) -> String {
    let old = stamp.unwrap_or_default().lines();
    let old = old.filter(|line| !wanted.iter().any(|one| one == line));
    let lines: Vec<&str> = wanted.iter().map(String::as_str).chain(old).collect();
    lines.join("\n")
}

/// Asks the environment itself for all that is wanted.
fn has_all(program: &Path, wanted: &[String]) -> Result<()> {
    const ASK: &str =
        "import importlib.metadata as m, sys; [m.version(name) for name in sys.argv[1:]]";
    let names = wanted.iter().map(|one| name(one));
    process::output(Command::new(program).args(["-I", "-c", ASK]).args(names))
        .with_context(|| format!("{} lacks a package that pip installed", program.display()))?;
    Ok(())
}

/// The package's name in a requirement.
fn name(requirement: &str) -> &str {
    let end = requirement.find(|c: char| !(c.is_ascii_alphanumeric() || "-_.".contains(c)));
    &requirement[..end.unwrap_or(requirement.len())]
}

fn without_elsewhere(command: &mut Command) -> &mut Command {
    for variable in ELSEWHERE {
        command.env_remove(variable);
    }
    command
}

/// A program that PyPI has as a wheel, in an environment of its own in the cache.
///
/// # Errors
/// When there is no suitable Python, or an installation fails.
pub fn program(project: &Project, requirement: &str, name: &str) -> Result<PathBuf> {
    let home = project.cache.join(format!("tool-{name}"));
    fs::create_dir_all(&project.cache)
        .with_context(|| format!("create {}", project.cache.display()))?;
    let lock = project.cache.join(format!("tool-{name}.lock"));
    let lock = File::create(&lock).with_context(|| format!("create {}", lock.display()))?;
    lock.lock().context("lock the cached environment")?;

    let program = home.join("bin").join(name);
    let stamp = home.join(STAMP);
    if fs::read_to_string(&stamp).ok().as_deref() != Some(requirement) || !program.exists() {
        say(&format!("installing {requirement} from PyPI"));
        create(&home)?;
        pip(&home.join("bin/python"))
            .arg("--only-binary=:all:")
            .arg(requirement)
            .check()?;
        fs::write(&stamp, requirement).with_context(|| format!("write {}", stamp.display()))?;
    }
    Ok(program)
}

struct Pip(Command);

fn pip(program: &Path) -> Pip {
    let mut command = Command::new(program);
    command.args([
        "-m",
        "pip",
        "--disable-pip-version-check",
        "install",
        "--quiet",
    ]);
    without_elsewhere(&mut command);
    Pip(command)
}

impl Pip {
    fn arg(mut self, argument: &str) -> Self {
        self.0.arg(argument);
        self
    }

    fn args(mut self, arguments: &[String]) -> Self {
        self.0.args(arguments);
        self
    }

    fn check(mut self) -> Result<()> {
        process::check(&mut self.0)
    }
}

/// Makes an empty environment, in place of an incomplete one.
fn create(home: &Path) -> Result<()> {
    if home.exists() {
        say(&format!(
            "removing the incomplete environment {}",
            home.display()
        ));
        fs::remove_dir_all(home).with_context(|| format!("remove {}", home.display()))?;
    }
    let base = base_interpreter()?;
    say(&format!(
        "making a virtual environment in {} with {}",
        home.display(),
        base.display()
    ));
    let mut venv = Command::new(&base);
    process::check(without_elsewhere(venv.args(["-m", "venv"]).arg(home)))
}

/// A Python that can make the environment: `NPUALLOC_PYTHON`, or a 3.11 found
/// in `PATH`, or Debian's, installed when needed.
fn base_interpreter() -> Result<PathBuf> {
    if let Some(program) = directory("NPUALLOC_PYTHON") {
        let version = version(&program)
            .with_context(|| format!("NPUALLOC_PYTHON is {}", program.display()))?;
        ensure!(
            usable(&program),
            "{} (Python {version}) lacks the venv module, pip or the headers",
            program.display()
        );
        if version != "3.11" {
            say(&format!(
                "NPUALLOC_PYTHON is Python {version}; only 3.11 is tried regularly"
            ));
        }
        return Ok(program);
    }
    if let Some(program) = search() {
        return Ok(program);
    }
    const OTHER: &str = "set NPUALLOC_PYTHON to a 3.11, or to another Python that torch-npu has wheels for, with the \
                         venv module, pip and headers";
    let policy = process::output(Command::new("apt-cache").args(["policy", "python3"]));
    if let Some(offered) = policy.ok().as_deref().and_then(candidate)
        && offered != "3.11"
    {
        // Its packages would not help.
        bail!("this system's python3 is {offered}, not 3.11; {OTHER}");
    }
    apt::install(
        &["python3", "python3-venv", "python3-dev"],
        "Python 3.11 with venv and headers (or set NPUALLOC_PYTHON)",
    )?;
    match search() {
        Some(program) => Ok(program),
        None => bail!("this system's python3 is not 3.11; {OTHER}"),
    }
}

/// Major and minor version of what apt would install, in the output of `apt-cache policy`.
fn candidate(policy: &str) -> Option<String> {
    let version = policy
        .lines()
        .find_map(|line| line.trim().strip_prefix("Candidate:"))?
        .trim();
    let mut parts = version.split('.');
    let (major, minor) = (parts.next()?, parts.next()?);
    let numbers = [major, minor].map(|part| part.parse::<u32>().ok());
    numbers
        .iter()
        .all(Option::is_some)
        .then(|| format!("{major}.{minor}"))
}

fn search() -> Option<PathBuf> {
    ["python3.11", "python3", "/usr/bin/python3.11"]
        .into_iter()
        .map(PathBuf::from)
        .find(|program| version(program).is_ok_and(|found| found == "3.11") && usable(program))
}

fn version(program: &Path) -> Result<String> {
    let ask = "import sys; print('%d.%d' % sys.version_info[:2])";
    process::output(Command::new(program).args(["-c", ask]))
}

/// Whether it can make environments, and extensions can be compiled for it.
fn usable(program: &Path) -> bool {
    let ask = "import ensurepip, os, sysconfig, venv; \
               assert os.path.exists(os.path.join(sysconfig.get_path('include'), 'Python.h'))";
    process::output(Command::new(program).args(["-c", ask])).is_ok()
}

#[cfg(test)]
mod tests;
