"""server.py behind a Unix socket.

    socket_server.py PATH DIRECTORY [FAULT ...]
"""
import os, socket, sys

path = sys.argv[1]
sys.argv[1:] = sys.argv[2:]
import server

listener = socket.socket(socket.AF_UNIX)
listener.bind(path)
listener.listen()
client, _ = listener.accept()
os.dup2(client.fileno(), 0)
os.dup2(client.fileno(), 1)
client.close()
server.main()
