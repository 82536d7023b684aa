"""The files of a job, in any file system that Spark knows."""

import attrs
from py4j.java_gateway import JavaObject
from pyspark.sql import SparkSession


@attrs.frozen
class StoredFile:
    """A file, by its name below a job's directory."""

    name: str
    size_bytes: int


class JobFiles:
    """A directory, read and written by Hadoop's `FileSystem`, as Spark itself does.

    Names are relative to the directory, with `/` between their parts. A file is created by a
    rename, so it is whole as soon as it is there. Two jobs that create the same one at the same
    moment are told apart where the file system's rename does so: in HDFS, but not on a disk.
    """

    def __init__(self, spark: SparkSession, directory: str) -> None:
        """directory: a path of this machine, or a URL."""
        context = spark.sparkContext
        # PySpark offers file systems in no other way.
        jvm, java = context._jvm, context._jsc  # noqa: SLF001
        assert jvm is not None, "the session has ended"
        self._jvm: JavaObject = jvm
        root = self._jvm.org.apache.hadoop.fs.Path(directory)
        self._system = root.getFileSystem(java.hadoopConfiguration())
        self._root = str(self._system.makeQualified(root).toString()).rstrip("/")

    def __repr__(self) -> str:
        return f"JobFiles({self._root})"

    def url(self, name: str = "") -> str:
        """The URL of this file or directory, or of the job's directory."""
        return f"{self._root}/{name}" if name else self._root

    def is_there(self, name: str) -> bool:
        """Whether there is a file or directory of this name."""
        return bool(self._system.exists(self._path(name)))

    def files_below(self, name: str) -> list[StoredFile]:
        """All files below a directory, sorted by name; none if it does not exist."""
        if not self.is_there(name):
            return []
        found = []
        files = self._system.listFiles(self._path(name), True)  # noqa: FBT003 - recursively.
        while files.hasNext():
            status = files.next()
            found.append(StoredFile(self._name(status.getPath()), int(status.getLen())))
        return sorted(found, key=lambda file: file.name)

    def names_in(self, name: str) -> list[str]:
        """The sorted names of the files and directories in a directory."""
        if not self.is_there(name):
            return []
        found = self._system.listStatus(self._path(name))
        return sorted(str(status.getPath().getName()) for status in found)

    def read(self, name: str) -> str:
        """The text of a file that is there."""
        opened = self._system.open(self._path(name))
        try:
            return str(self._jvm.org.apache.commons.io.IOUtils.toString(opened, "UTF-8"))
        finally:
            opened.close()

    def create(self, name: str, text: str) -> bool:
        """Create a file; False if there is one already."""
        if self.is_there(name):
            return False
        before = f"{name}.new"
        written = self._system.create(self._path(before), True)  # noqa: FBT003 - overwrites.
        try:
            written.write(bytearray(text.encode()))
        finally:
            written.close()
        return bool(self._system.rename(self._path(before), self._path(name)))

    def rename(self, name: str, to: str) -> None:
        """Rename a file into a directory that need not exist. OSError if it cannot be."""
        self._system.mkdirs(self._path(to).getParent())
        if not self._system.rename(self._path(name), self._path(to)):
            raise OSError(f"{self.url(name)} could not be renamed to {self.url(to)}")

    def delete(self, name: str) -> None:
        """Delete a file, or a directory with all that is in it; nothing if it is not there."""
        self._system.delete(self._path(name), True)  # noqa: FBT003 - with all that is in it.

    def _path(self, name: str) -> JavaObject:
        return self._jvm.org.apache.hadoop.fs.Path(self.url(name))

    def _name(self, path: JavaObject) -> str:
        return str(path.toString()).removeprefix(f"{self._root}/")
