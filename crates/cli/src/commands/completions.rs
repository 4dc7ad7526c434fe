//! `obento completions SHELL`: a script that calls `obento complete` for the words of a command line.

use std::io::Write;

use clap_complete::Shell;

use crate::context::Context;
use crate::help::page::Page;
use crate::output::{Outcome, Output};

/// The page of `completions`.
pub const PAGE: Page = Page::new(&[
    (
        "obento completions bash > ~/.local/share/bash-completion/completions/obento",
        "Install the completions for bash",
    ),
    ("obento completions zsh > ~/.zfunc/_obento", "Install the completions for zsh"),
    ("obento completions fish > ~/.config/fish/completions/obento.fish", "Install the completions for fish"),
])
.see_also(&["bash(1)"]);

/// Print the completion script of a shell
///
/// The scripts of bash, zsh and fish complete commands, options, files of the host, and paths inside images.
#[derive(clap::Args, Debug)]
pub struct Args {
    /// The shell
    shell: Shell,
}

/// Readline replaces the text after the last of its word breaks, such as `:`; the candidates lose what is before.
const BASH: &str = r#"_obento() {
    local candidate skip=
    local typed=${COMP_LINE:0:COMP_POINT}
    COMPREPLY=()
    while IFS= read -r candidate; do
        if [[ -z $skip ]]; then
            skip=$candidate
        else
            COMPREPLY+=("${candidate:$skip}")
        fi
    done < <(obento complete --breaks "${COMP_WORDBREAKS//[!:=@]/}" -- "$typed" 2>/dev/null)
    if [[ ${#COMPREPLY[@]} -eq 1 && ${COMPREPLY[0]} == */ ]]; then
        compopt -o nospace 2>/dev/null
    fi
}
complete -o default -F _obento obento
"#;

const ZSH: &str = r#"#compdef obento
_obento() {
    local -a candidates
    candidates=("${(@f)$(obento complete -- "${(j: :)words[1,CURRENT-1]} $PREFIX" 2>/dev/null)}")
    candidates=("${(@)candidates:#}")
    if (( $#candidates )); then
        compadd -Q -U -S '' -- "${(@M)candidates:#*[/:=]}"
        compadd -Q -U -- "${(@)candidates:#*[/:=]}"
    else
        _files
    fi
}
if [[ $funcstack[1] == _obento ]]; then
    _obento "$@"
else
    compdef _obento obento
fi
"#;

/// Without `-f`, fish would also offer the host's files for a path inside an image.
const FISH: &str = r#"function __obento_complete
    set -l candidates (obento complete --plain -- (commandline -cp | string collect) 2>/dev/null)
    if test (count $candidates) -gt 0
        printf '%s\n' $candidates
    else
        __fish_complete_path (commandline -ct)
    end
end
complete -c obento -f -a '(__obento_complete)'
"#;

pub fn run(args: &Args, context: &Context) -> Outcome {
    let mut out = Output::stdout();
    match args.shell {
        Shell::Bash => out.write_all(BASH.as_bytes())?,
        Shell::Zsh => out.write_all(ZSH.as_bytes())?,
        Shell::Fish => out.write_all(FISH.as_bytes())?,
        shell => {
            // The generator panics if it cannot write.
            let mut script = Vec::new();
            clap_complete::generate(shell, &mut (context.table().commands)(), "obento", &mut script);
            out.write_all(&script)?;
        }
    }
    out.finish()
}
