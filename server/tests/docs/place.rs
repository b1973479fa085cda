//! The place in which the commands of a page run: a folder, programs on the PATH, ports, and the
//! processes that stay.

use std::collections::HashMap;
use std::fs::{self, File};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use tempfile::TempDir;
use testkit::programs;

/// The time limit of a command, also on a busy machine.
const BOUND: Duration = Duration::from_secs(120);

/// The ports that the pages name: of the service, of the gateway and of its admin listener.
const NAMED: [u16; 3] = [3000, 8080, 9180];

/// The place of a test; its processes end when this is dropped.
pub(crate) struct Place {
    folder: TempDir,
    ports: HashMap<u16, u16>,
    running: Vec<Child>,
}

impl Place {
    pub(crate) fn new() -> Self {
        let folder = TempDir::new().expect("a folder");
        let programs = folder.path().join("programs");
        fs::create_dir(&programs).expect("a folder");
        symlink(env!("CARGO_BIN_EXE_semel"), programs.join("semel")).expect("a link");
        for (name, found) in
            [("python3", programs::python()), ("node", programs::node()), ("curl", programs::curl())]
        {
            wrap(&found.expect("testkit finds it"), &programs.join(name));
        }
        Self { folder, ports: NAMED.into_iter().zip(free_ports()).collect(), running: Vec::new() }
    }

    pub(crate) fn write(&self, name: &str, text: &str) {
        fs::write(self.folder.path().join(name), self.with_ports(text)).expect("the file is written");
    }

    /// Starts a command that stays, and waits until it listens.
    pub(crate) fn start(&mut self, port: u16, command: &str) {
        let port = self.ports[&port];
        let mut child = self.shell(&format!("exec {command}")).spawn().expect("the shell starts");
        let began = Instant::now();
        while TcpStream::connect(("127.0.0.1", port)).is_err() {
            let ended = child.try_wait().expect("it can be asked");
            assert!(ended.is_none(), "{command} ended: {ended:?}");
            assert!(began.elapsed() < BOUND, "{command} does not listen on port {port}");
            sleep(Duration::from_millis(10));
        }
        self.running.push(child);
    }

    /// Runs commands to their end, and returns their output if they succeed.
    pub(crate) fn run(&self, commands: &str) -> String {
        let path = self.folder.path().join("printed");
        let printed = File::create(&path).expect("a file");
        let mut child = self.shell(commands).stdout(printed).spawn().expect("the shell starts");
        let began = Instant::now();
        let status = loop {
            if let Some(status) = child.try_wait().expect("it can be asked") {
                break status;
            }
            if began.elapsed() > BOUND {
                let _ = child.kill();
                panic!("these commands do not end:\n{commands}");
            }
            sleep(Duration::from_millis(10));
        };
        let printed = fs::read(&path).expect("what was printed");
        let printed = String::from_utf8_lossy(&printed).replace("\r\n", "\n");
        assert!(status.success(), "{status} of these commands:\n{commands}\nThey printed:\n{printed}");
        printed
    }

    /// The standard error of all commands, for a failed test.
    fn errors(&self) -> File {
        let errors = File::options().create(true).append(true).open(self.folder.path().join("errors"));
        errors.expect("a file")
    }

    fn shell(&self, commands: &str) -> Command {
        let mut shell = Command::new("sh");
        shell.args(["-e", "-c", &self.with_ports(commands)]).current_dir(self.folder.path());
        for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("SEMEL_"))
        {
            shell.env_remove(name);
        }
        let path = std::env::var_os("PATH").unwrap_or_default();
        let programs = [self.folder.path().join("programs")];
        let path = std::env::join_paths(programs.into_iter().chain(std::env::split_paths(&path)));
        shell
            .env("PATH", path.expect("folders without a colon"))
            .env("SEMEL_LISTEN", format!("127.0.0.1:{}", self.ports[&8080]))
            .env("SEMEL_ADMIN", format!("127.0.0.1:{}", self.ports[&9180]))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(self.errors());
        shell
    }

    /// The text with the ports of this test, because another process may have those of the page.
    fn with_ports(&self, text: &str) -> String {
        let mut text = text.to_owned();
        for (named, ours) in &self.ports {
            text = text.replace(&named.to_string(), &ours.to_string());
        }
        text
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let errors = fs::read(self.folder.path().join("errors")).unwrap_or_default();
            println!("{}", String::from_utf8_lossy(&errors));
        }
        for mut child in self.running.drain(..) {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// A program under a name, with the libraries that were found with it.
fn wrap(program: &Command, at: &Path) {
    let mut script = "#!/bin/sh\n".to_owned();
    for (name, value) in program.get_envs() {
        let value = value.unwrap_or_default();
        script.push_str(&format!("export {}='{}'\n", name.display(), value.display()));
    }
    script.push_str(&format!("exec '{}' \"$@\"\n", program.get_program().display()));
    fs::write(at, script).expect("a script");
    fs::set_permissions(at, fs::Permissions::from_mode(0o755)).expect("it can be executed");
}

/// Ports below those that the system gives out by itself, so that no other test gets them in
/// between. Another run begins elsewhere.
fn free_ports() -> impl Iterator<Item = u16> {
    let begin = std::process::id() as u16 % 8_000;
    (0..8_000)
        .map(move |step| 20_000 + (begin + step) % 8_000)
        .filter(|port| TcpListener::bind(("127.0.0.1", *port)).is_ok())
}
