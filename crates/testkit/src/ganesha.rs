//! nfs-ganesha, an NFS server in user space, with an export of a folder.

use std::fs;
use std::net::TcpListener;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use crate::oracle::{Oracle, program, require, until};

/// The number of times that a server starts until one runs.
const STARTS: usize = 20;

/// A process that ends when it is dropped.
#[derive(Debug)]
struct Running(Child);

impl Running {
    fn has_ended(&mut self) -> bool {
        self.0.try_wait().expect("a child").is_some()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A server on loopback. It ends when it is dropped.
#[derive(Debug)]
pub struct Ganesha {
    /// Port of NFS.
    pub port: u16,
    /// Port of MOUNT.
    pub mount_port: u16,
    _server: Running,
    _mapper: Running,
}

fn free_port() -> u16 {
    let listener = TcpListener::bind(("127.0.0.1", 0)).expect("a port of loopback");
    listener.local_addr().expect("a bound socket").port()
}

fn quiet(command: &mut Command) -> Running {
    Running(command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("the program starts"))
}

impl Ganesha {
    /// Starts a server that exports the folder `export` read-only, by version 3; its own files are in `folder`. Returns
    /// `None` if an oracle is missing. The server accepts connections.
    ///
    /// # Panics
    ///
    /// If no server runs after 20 attempts.
    pub fn start(folder: &Path, export: &Path) -> Option<Self> {
        Self::start_with(folder, export, "RO")
    }

    /// Starts a server as [`start`](Self::start) does, and exports the folder for reading and writing.
    pub fn start_writable(folder: &Path, export: &Path) -> Option<Self> {
        Self::start_with(folder, export, "RW")
    }

    fn start_with(folder: &Path, export: &Path, access: &str) -> Option<Self> {
        if !require(&[Oracle::Program("ganesha.nfsd"), Oracle::Program("rpcbind"), Oracle::Root]) {
            return None;
        }
        // A start fails if another test takes one of the ports, or ends the port mapper at which the server registers.
        let mut starts = (0..STARTS).filter_map(|_| Self::try_start(folder, export, access));
        Some(starts.next().unwrap_or_else(|| panic!("{}", log(folder))))
    }

    /// Starts a server, and returns `None` if it ends instead of accepting connections.
    fn try_start(folder: &Path, export: &Path, access: &str) -> Option<Self> {
        let (port, mount_port) = (free_port(), free_port());
        let text = format!(
            "NFS_CORE_PARAM {{ NFS_Port = {port}; MNT_Port = {mount_port}; Enable_NLM = false; Enable_RQUOTA = false; \
             Protocols = 3; Bind_addr = 127.0.0.1; }}\nNFS_KRB5 {{ Active_krb5 = false; }}\n\
             EXPORT {{ Export_Id = 1; Path = \"{0}\"; Pseudo = \"/srv\"; Protocols = 3; Access_Type = {access}; \
             Squash = None; SecType = sys; Transports = TCP; FSAL {{ Name = VFS; }} }}\n",
            export.display()
        );
        let conf = folder.join("conf");
        fs::write(&conf, text).expect("a configuration");
        let _ = fs::remove_file(folder.join("log"));
        // A second port mapper ends at once.
        let mapper = quiet(program("rpcbind").args(["-f", "-w"]));
        let mut server = program("ganesha.nfsd");
        let server = server
            .arg("-F")
            .arg("-f")
            .arg(&conf)
            .arg("-p")
            .arg(folder.join("pid"))
            .arg("-L")
            .arg(folder.join("log"));
        let mut server = quiet(server);
        let (mut has_started, mut has_ended) = (false, false);
        until(|| {
            has_ended = server.has_ended();
            has_started = log(folder).contains("NFS SERVER INITIALIZED");
            has_started || has_ended
        });
        (has_started && !has_ended).then_some(Self { port, mount_port, _server: server, _mapper: mapper })
    }
}

fn log(folder: &Path) -> String {
    fs::read_to_string(folder.join("log")).unwrap_or_default()
}
