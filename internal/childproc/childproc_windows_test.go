package childproc

const shellOfTests = "cmd"
