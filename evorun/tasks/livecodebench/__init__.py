"""LiveCodeBench: programming problems of three difficulties, answered by programs that hidden tests grade."""
