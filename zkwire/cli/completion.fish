# Completion of zkwire, written by `zkwire completion fish`.
function __zkwire_complete
    set -l words (commandline -opc)
    set -l program $words[1]
    set -e words[1]
    $program complete -- $words (commandline -ct) 2>/dev/null </dev/null
    or __fish_complete_path (commandline -ct)
end
complete -c zkwire -f -a '(__zkwire_complete)'
