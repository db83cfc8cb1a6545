"""Log books other than BELY, over HTTP: Olog, ELOG, and services that give JSON."""
