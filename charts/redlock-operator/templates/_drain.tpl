{{/* What the pods of the hooks before an uninstall share: the pod without its containers. */}}
{{- define "redlock-operator.drainPod" -}}
metadata:
  {{- with .Values.drain.podAnnotations }}
  annotations:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  labels:
    app.kubernetes.io/name: {{ .Chart.Name }}
    app.kubernetes.io/instance: {{ .Release.Name }}
    app.kubernetes.io/component: drain
spec:
  restartPolicy: Never
  enableServiceLinks: false
  {{- with include "redlock-operator.imagePullSecrets" . }}
  {{- . | nindent 2 }}
  {{- end }}
  {{- with .Values.nodeSelector }}
  nodeSelector:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with .Values.tolerations }}
  tolerations:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  securityContext:
    {{- include "redlock-operator.podSecurityContext" . | nindent 4 }}
{{- end -}}

{{- define "redlock-operator.drainContainer" -}}
image: {{ include "redlock-operator.image" . | quote }}
{{- with .Values.image.pullPolicy }}
imagePullPolicy: {{ . }}
{{- end }}
resources:
  requests: {cpu: 10m, memory: 32Mi}
  limits: {memory: 64Mi}
securityContext:
  {{- include "redlock-operator.containerSecurityContext" . | nindent 2 }}
{{- end -}}
